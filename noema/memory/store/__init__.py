"""All SQL of the memory package, a module per concern. Nothing outside the package imports it."""
