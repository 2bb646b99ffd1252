"""Who may lock tables, as MySQL says it."""

from __future__ import annotations

import pytest

from sinkpipeline.core.changes.binlog_grants import may_lock


@pytest.mark.parametrize(
    ("grant", "may"),
    [
        ("GRANT USAGE ON *.* TO `cdc`@`%`", False),
        ("GRANT SELECT ON `shop`.`orders` TO `cdc`@`%`", False),
        ("GRANT SELECT ON `shop`.* TO `cdc`@`%`", False),
        ("GRANT SELECT, LOCK TABLES ON `other`.* TO `cdc`@`%`", False),
        ("GRANT SELECT, LOCK TABLES ON `SHOP_X`.* TO `cdc`@`%`", False),
        (r"GRANT LOCK TABLES ON `sho\_`.* TO `cdc`@`%`", False),
        ("GRANT `LOCK TABLES`@`%` TO `cdc`@`%`", False),
        ("GRANT SELECT, LOCK TABLES, TRIGGER ON `shop`.* TO `cdc`@`%`", True),
        ("GRANT LOCK TABLES ON `sho_`.* TO `cdc`@`%`", True),
        ("GRANT LOCK TABLES ON `s%`.* TO `cdc`@`%`", True),
        ("GRANT SELECT, RELOAD, LOCK TABLES, REPLICATION SLAVE ON *.* TO `cdc`@`%` WITH GRANT OPTION", True),
        ("GRANT ALL PRIVILEGES ON `shop`.* TO `root`@`localhost`", True),
        ("GRANT ALL PRIVILEGES ON *.* TO `root`@`localhost` WITH GRANT OPTION", True),
    ],
)
def test_who_may_lock(grant: str, may: bool) -> None:
    assert may_lock(["GRANT USAGE ON *.* TO `cdc`@`%`", grant], "shop.orders") is may
