"""HTTP to the outside: bounded in time and size."""
