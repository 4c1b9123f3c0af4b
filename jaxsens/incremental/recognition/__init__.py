"""Attention as models write it, found among their operations and made one operation."""
