"""The Milvus servers that these tests use."""

from milvus_servers import lite_uri, milvus_server, milvus_uri, uri

__all__ = ["lite_uri", "milvus_server", "milvus_uri", "uri"]
