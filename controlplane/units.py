"""Amounts as people read them: units, binary sizes, short names of resources."""

UNKNOWN = "–"  # noqa: RUF001 -- a dash, typeset
KIB = 1024
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
LEAST_WRITTEN_MILLI = 5
GPU = "nvidia.com/gpu"
_SHORT = {GPU: "GPU", "cpu": "CPU", "memory": "memory", "pods": "tasks"}


def plain(value: float, digits: int = 1) -> str:
    """Write a number without needless zeros."""
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def milli(value: int | None) -> str:
    """Write thousandths as units: 1500 -> 1.5; a little is not written as nothing."""
    if value is not None and 0 < value < LEAST_WRITTEN_MILLI:
        return "<0.01"
    return UNKNOWN if value is None else plain(value / 1000, 2)


def bytes_(value: float | None) -> str:
    """Write bytes in the largest binary unit that fits."""
    if value is None:
        return UNKNOWN
    size = float(value)
    for unit in _BINARY:
        if abs(size) < KIB or unit == _BINARY[-1]:
            return f"{plain(size, 1)} {unit}"
        size /= KIB
    raise AssertionError("unreachable: the last unit takes everything")


def amount(value: int | None, resource: str) -> str:
    """Write an amount of a resource in its unit."""
    if value is None:
        return UNKNOWN
    return bytes_(value) if resource in {"memory", "ephemeral-storage"} else milli(value)


def resource_name(resource: str) -> str:
    """Return the short name of a resource."""
    return _SHORT.get(resource, resource)
