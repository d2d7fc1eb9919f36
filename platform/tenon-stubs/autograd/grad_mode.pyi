# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.tensors.autograd.grad_mode import enable_grad as enable_grad
from tenon.tensors.autograd.grad_mode import inference_mode as inference_mode
from tenon.tensors.autograd.grad_mode import is_grad_enabled as is_grad_enabled
from tenon.tensors.autograd.grad_mode import is_inference_mode_enabled as is_inference_mode_enabled
from tenon.tensors.autograd.grad_mode import no_grad as no_grad
from tenon.tensors.autograd.grad_mode import set_grad_enabled as set_grad_enabled
from tenon.tensors.autograd.grad_mode import set_multithreading_enabled as set_multithreading_enabled
