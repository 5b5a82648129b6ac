"""Clients that outlast a server: OpenAI-compatible ones, Milvus, the hub."""
