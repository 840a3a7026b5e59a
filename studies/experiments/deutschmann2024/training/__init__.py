"""The four networks of the paper: gather inputs, train, keep predictions and embeddings."""
