"""What a file of Python imports."""

import ast


def imported(file):
    """Yield the modules that a file imports, also in functions, and the names from modules."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield from (f"{module}.{each.name}" for each in node.names)
