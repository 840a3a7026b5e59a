"""What is done before a version is published; see checks/release/README.md."""
