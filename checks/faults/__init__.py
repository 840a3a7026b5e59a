"""A kill, a full disk, Ctrl-C at every step of every write."""
