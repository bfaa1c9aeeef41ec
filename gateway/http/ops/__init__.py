"""Routes for operators and tools: health, OpenAPI."""
