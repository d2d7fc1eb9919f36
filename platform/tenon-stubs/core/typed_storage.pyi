# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.typed_storage import *
from tenon.compat.typed_storage import NAMED_FORMS as NAMED_FORMS
from tenon.compat.typed_storage import _FORMS as _FORMS
from tenon.compat.typed_storage import _QUANTIZED as _QUANTIZED
from tenon.compat.typed_storage import _TYPED as _TYPED
from tenon.compat.typed_storage import _check_wrapping as _check_wrapping
from tenon.compat.typed_storage import check_contents as check_contents
from tenon.compat.typed_storage import check_wrapped as check_wrapped
from tenon.compat.typed_storage import number_dtype as number_dtype
from tenon.compat.typed_storage import refuse_arguments as refuse_arguments
