"""Ways to models: one module per wire format, over httpx, without any vendor's own library."""
