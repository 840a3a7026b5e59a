"""What is done before a version is published; see docs/release.md."""
