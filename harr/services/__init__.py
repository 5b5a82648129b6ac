"""Clients for servers: OpenAI-compatible ones, Milvus, the model registry."""
