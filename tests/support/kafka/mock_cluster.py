"""The client library's own mock of a cluster: it answers requests with the errors that a real broker gives rarely."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import confluent_kafka
from typing_extensions import Self

_PRODUCER = 0
_MOST = 1_000
PRODUCE, INIT_PRODUCER_ID, ADD_PARTITIONS, END_TXN = 0, 22, 24, 26


class MockCluster:
    """One broker with some topics of one partition; use it in a `with`."""

    def __init__(self, *topics: str) -> None:
        self._topics = topics
        self._handle: int | None = None
        self._cluster: int | None = None
        self.servers = ""

    def __enter__(self) -> Self:
        library = _library()
        text = ctypes.create_string_buffer(512)
        settings = library.rd_kafka_conf_new()
        for name, value in (("bootstrap.servers", "127.0.0.1:1"), ("log_level", "0")):
            library.rd_kafka_conf_set(settings, name.encode(), value.encode(), text, len(text))
        self._handle = library.rd_kafka_new(_PRODUCER, settings, text, len(text))
        if not self._handle:
            raise RuntimeError(text.value.decode())
        self._cluster = library.rd_kafka_mock_cluster_new(self._handle, 1)
        self.servers = library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()
        for topic in self._topics:
            library.rd_kafka_mock_topic_create(self._cluster, topic.encode(), 1, 1)
        return self

    def __exit__(self, *_: object) -> None:
        _library().rd_kafka_mock_cluster_destroy(self._cluster)
        _library().rd_kafka_destroy(self._handle)

    def answer(self, api: int, code: int, times: int = _MOST) -> None:
        """The next requests of a kind are answered with an error."""
        codes: Sequence[int] = [code] * times
        array = (ctypes.c_int * times)(*codes)
        _library().rd_kafka_mock_push_request_errors_array(self._cluster, api, times, array)


@cache
def _library() -> ctypes.CDLL:
    """The very library that the client has loaded."""
    assert confluent_kafka.libversion()
    [path] = {*re.findall(r"/\S*librdkafka\S*", Path("/proc/self/maps").read_text(encoding="utf-8"))}
    library = ctypes.CDLL(path)
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    library.rd_kafka_new.restype = pointer
    library.rd_kafka_new.argtypes = [ctypes.c_int, pointer, text, ctypes.c_size_t]
    library.rd_kafka_conf_new.restype = pointer
    library.rd_kafka_conf_set.argtypes = [pointer, text, text, text, ctypes.c_size_t]
    library.rd_kafka_destroy.argtypes = [pointer]
    library.rd_kafka_mock_cluster_new.restype = pointer
    library.rd_kafka_mock_cluster_new.argtypes = [pointer, ctypes.c_int]
    library.rd_kafka_mock_cluster_destroy.argtypes = [pointer]
    library.rd_kafka_mock_cluster_bootstraps.restype = text
    library.rd_kafka_mock_cluster_bootstraps.argtypes = [pointer]
    library.rd_kafka_mock_topic_create.argtypes = [pointer, text, ctypes.c_int, ctypes.c_int]
    library.rd_kafka_mock_push_request_errors_array.argtypes = [pointer, ctypes.c_int16, ctypes.c_size_t, pointer]
    return library
