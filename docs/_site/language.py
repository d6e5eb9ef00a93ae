"""A Chinese page says that it is one: browsers choose the forms of its characters by that, else often Japanese ones."""

from typing import Any


def on_post_page(output: str, page: Any, **rest: Any) -> str:
    is_chinese = ".zh-CN." in page.file.src_uri
    return output.replace('<html lang="en"', '<html lang="zh-CN"', 1) if is_chinese else output
