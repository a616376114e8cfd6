"""The memory of a process that lives: of the dead the kernel counts its parent's, too."""

from pathlib import Path


def peak(pid: int) -> int:
    """The most memory that a process has held since it was forked or became its program, in bytes.

    0 where it cannot be seen: it has ended, or the system tells nothing of processes.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    held = (line.split()[1] for line in lines if line.startswith("VmHWM"))
    return int(next(held, 0)) << 10
