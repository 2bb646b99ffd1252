from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from model.product import product_on_the_model

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _product_on_the_model() -> Iterator[None]:
    """The product's warnings are what these tests are made of: nobody reads them thousands of times."""
    logging.disable(logging.CRITICAL)
    try:
        with product_on_the_model():
            yield
    finally:
        logging.disable(logging.NOTSET)
