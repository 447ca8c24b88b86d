"""JSON over HTTP, one module per resource."""
