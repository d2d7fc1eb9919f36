# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat._C import *
from tenon.compat._C import _ConvBackend as _ConvBackend
from tenon.compat._C import _Functions as _Functions
from tenon.compat._C import _TorchFunctionState as _TorchFunctionState
from tenon.compat._C import _WeakTensorRef as _WeakTensorRef
from tenon.compat._C import _autograd as _autograd
from tenon.compat._C import _current_graph_task_id as _current_graph_task_id
from tenon.compat._C import _functions as _functions
from tenon.compat._C import _get_accelerator as _get_accelerator
from tenon.compat._C import _get_function_stack_at as _get_function_stack_at
from tenon.compat._C import _get_mkldnn_enabled as _get_mkldnn_enabled
from tenon.compat._C import _get_privateuse1_backend_name as _get_privateuse1_backend_name
from tenon.compat._C import _get_torch_function_state as _get_torch_function_state
from tenon.compat._C import _get_tracing_state as _get_tracing_state
from tenon.compat._C import _len_torch_function_stack as _len_torch_function_stack
from tenon.compat._C import _log_api_usage_once as _log_api_usage_once
from tenon.compat._C import _next_pass as _next_pass
from tenon.compat._C import _nn as _nn
from tenon.compat._C import _passes as _passes
from tenon.compat._C import _pop_torch_function_stack as _pop_torch_function_stack
from tenon.compat._C import _push_on_torch_function_stack as _push_on_torch_function_stack
from tenon.compat._C import _select_conv_backend as _select_conv_backend
from tenon.compat._C import _set_mkldnn_enabled as _set_mkldnn_enabled
from tenon.compat._C import _set_torch_function_state as _set_torch_function_state
