"""The methods that the paper compares itself with."""
