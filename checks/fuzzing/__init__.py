"""Odd files, tables and calls: only named errors, no NaN, nothing half-written."""
