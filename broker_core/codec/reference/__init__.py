"""Pure-Python twins of the native functions: the specification that the C code equals.

One file per C file that has functions for Python, with the same name; its `__all__` lists these
functions. `codec.native` is the only importer.
"""
