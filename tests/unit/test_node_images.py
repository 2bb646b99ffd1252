"""Of an image layout, what goes to a containerd that holds some of it; neither containerd nor root is needed."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

from node import images

NAME = "org.opencontainers.image.ref.name"


def blob(layout: Path, content: bytes) -> str:
    digest = hashlib.sha256(content).hexdigest()
    (layout / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
    (layout / "blobs" / "sha256" / digest).write_bytes(content)
    return f"sha256:{digest}"


def image(layout: Path, name: str, *layers: bytes) -> tuple[dict[str, Any], list[str]]:
    """Its entry of the index, and its blobs."""
    config = blob(layout, f"config of {name}".encode())
    digests = [blob(layout, layer) for layer in layers]
    manifest = {"config": {"digest": config}, "layers": [{"digest": each} for each in digests]}
    own = blob(layout, json.dumps(manifest).encode())
    return {"digest": own, "annotations": {NAME: name}}, [own, config, *digests]


def lay_out(layout: Path, *manifests: dict[str, Any]) -> None:
    (layout / "oci-layout").write_text("{}")
    (layout / "index.json").write_text(json.dumps({"manifests": manifests}))


def path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def test_what_the_reader_holds_is_not_in_the_archive(tmp_path: Path) -> None:
    ours, blobs = image(tmp_path, "localhost/ours:1", b"libraries", b"code")
    other, _ = image(tmp_path, "localhost/other:1", b"another")
    lay_out(tmp_path, ours, other)
    out = io.BytesIO()
    libraries = blobs[2]
    images.write_archive(tmp_path, ours, {libraries}, out)
    out.seek(0)
    with tarfile.open(fileobj=out) as archive:
        expected = {"oci-layout", "index.json", *(path(each) for each in blobs if each != libraries)}
        assert set(archive.getnames()) == expected
        index = archive.extractfile("index.json")
        assert index is not None
        assert json.load(index)["manifests"] == [ours]


def test_layers_that_no_image_has_any_more_go(tmp_path: Path) -> None:
    replaced, before = image(tmp_path, "localhost/ours:1", b"libraries", b"code")
    now, blobs = image(tmp_path, "localhost/ours:1", b"libraries", b"code, edited")
    # As who replaces it leaves it.
    del replaced["annotations"]
    lay_out(tmp_path, replaced, now)
    images.drop_unreferenced(tmp_path)
    assert json.loads((tmp_path / "index.json").read_text())["manifests"] == [now]
    left = {str(each.relative_to(tmp_path)) for each in tmp_path.glob("blobs/*/*")}
    assert left == {path(each) for each in blobs}
    assert not left & {path(each) for each in set(before) - set(blobs)}
