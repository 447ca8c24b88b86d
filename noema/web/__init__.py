"""The HTTP surface: API, pages, live stream."""
