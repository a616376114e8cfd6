"""What the processes of a running product spend on reading files."""

import psutil

from tests.support import PARTS, Product, get_part_name


def list_processes(product: Product) -> set[psutil.Process]:
    """All its processes; those that read files stand outside of its folders."""
    assert product.process is not None
    return {*product.processes(), *psutil.Process(product.process.pid).children(recursive=True)}


def read_cpu(product: Product) -> dict[str, float]:
    """Seconds of CPU that each process of the product took, with all its children."""
    spent = dict.fromkeys((*PARTS, "rest"), 0.0)
    for process in list_processes(product):
        try:
            times = process.cpu_times()
            kin = [process, *process.parents()]
            name = next((part for one in kin if (part := get_part_name(one)) in PARTS), "rest")
        except psutil.Error:
            continue
        spent[name] += times.user + times.system + times.children_user + times.children_system
    return spent
