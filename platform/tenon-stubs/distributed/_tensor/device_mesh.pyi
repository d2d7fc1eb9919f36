# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.distributed.device_mesh import DeviceMesh as DeviceMesh
from tenon.distributed.device_mesh import init_device_mesh as init_device_mesh
