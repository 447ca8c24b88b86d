"""Recorded cycles, run again and compared."""
