"""A real kernel, as a notebook has it: cells go in, what a reader of the notebook sees comes out."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[2] / "src"


class Kernel:
    def __init__(self, manager: Any, client: Any) -> None:
        self.manager, self.client = manager, client

    def run(self, code: str, on_output: Callable[[dict[str, Any]], None] = lambda output: None) -> list[dict[str, Any]]:
        """The outputs of a cell; one that is drawn anew is one output. Waits for as long as the cell takes."""
        asked, outputs, shown = self.client.execute(code), [], {}
        while True:
            message = self.client.get_iopub_msg(timeout=None)
            if message["parent_header"].get("msg_id") != asked:
                continue
            kind, content = message["msg_type"], message["content"]
            name = content.get("transient", {}).get("display_id")
            if kind == "status" and content["execution_state"] == "idle":
                return outputs
            if kind == "update_display_data":
                shown[name].update(content)
                on_output(shown[name])
            elif kind in ("display_data", "execute_result", "error", "stream"):
                outputs.append({"kind": kind, **content})
                shown[name] = outputs[-1]
                on_output(outputs[-1])

    def interrupt(self) -> None:
        self.manager.interrupt_kernel()


@contextmanager
def kernel(folder: Path) -> Iterator[Kernel]:
    """One that starts in ``folder``; what it writes to its own stderr is nobody's."""
    from jupyter_client.manager import KernelManager

    manager = KernelManager()
    manager.kernel_spec.argv[0] = sys.executable
    paths = os.pathsep.join(filter(None, (str(SOURCE), os.environ.get("PYTHONPATH"))))
    with (folder / "kernel.txt").open("w") as said:
        manager.start_kernel(
            cwd=str(folder), env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}, stdout=said, stderr=said
        )
        client = manager.client()
        client.start_channels()
        try:
            client.wait_for_ready(timeout=None)
            yield Kernel(manager, client)
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)
