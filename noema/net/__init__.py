"""HTTP to the outside: bounded in time, size and tries, and silent about its keys."""
