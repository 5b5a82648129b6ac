"""The Milvus servers used by these tests."""

from milvus_servers import lite_uri, milvus_server, milvus_uri, uri

__all__ = ["lite_uri", "milvus_server", "milvus_uri", "uri"]
