"""Conversion of networks from and to SciPy, Matrix Market, PyTorch and ONNX."""
