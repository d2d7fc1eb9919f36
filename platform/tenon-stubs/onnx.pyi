# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.onnx import *
from tenon.compat.onnx import Axes as Axes
from tenon.compat.onnx import _IGNORED as _IGNORED
from tenon.compat.onnx import _REFUSED as _REFUSED
from tenon.compat.onnx import _captured as _captured
from tenon.compat.onnx import _check_options as _check_options
from tenon.compat.onnx import _dynamic as _dynamic
from tenon.compat.onnx import _exporting as _exporting
from tenon.compat.onnx import _refused as _refused
from tenon.compat.onnx import _target_program as _target_program
from tenon.compat.onnx import _vectors as _vectors
from tenon.compat.onnx import _with_dims as _with_dims
