from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

from tools.wheel.entry_point_order import order_entry_points

SORTED = "[console_scripts]\na = m:a\n\n[torchx.schedulers]\naws = m:aws\nlocal = m:local\n"


def test_entry_points_stand_in_the_order_of_the_project_and_the_record_knows(tmp_path: Path) -> None:
    wheel = tmp_path / "x-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as made:
        made.writestr("x/__init__.py", "")
        made.writestr("x-1.dist-info/entry_points.txt", SORTED)
        made.writestr("x-1.dist-info/RECORD", "x/__init__.py,,0\nx-1.dist-info/entry_points.txt,sha256=old,9\n")
    order_entry_points(wheel, {"torchx.schedulers": {"local": "m:local", "aws": "m:aws"}})
    with zipfile.ZipFile(wheel) as read:
        text = read.read("x-1.dist-info/entry_points.txt")
        record = read.read("x-1.dist-info/RECORD").decode()
    assert text.decode() == "[console_scripts]\na = m:a\n\n[torchx.schedulers]\nlocal = m:local\naws = m:aws\n"
    digest = base64.urlsafe_b64encode(hashlib.sha256(text).digest()).rstrip(b"=").decode()
    assert record == f"x/__init__.py,,0\nx-1.dist-info/entry_points.txt,sha256={digest},{len(text)}\n"
    assert [path.name for path in tmp_path.iterdir()] == [wheel.name]
