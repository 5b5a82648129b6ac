"""Stage index: turn vectors into a searchable Milvus collection."""
