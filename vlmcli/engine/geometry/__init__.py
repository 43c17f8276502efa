"""Picture size to visual tokens, one pure function per model family.

The planner and the preprocessor call the same functions, so that a plan made from page sizes is the
plan of the pixels that come later. No pixels, no files, no torch.
"""

from vlmcli.engine.geometry.base import ImageGeometry
from vlmcli.engine.geometry.smart_resize import (
    QWEN2_VL,
    SmartResizeConfig,
    qwen2_vl,
    smart_resize,
)

__all__ = ["QWEN2_VL", "ImageGeometry", "SmartResizeConfig", "qwen2_vl", "smart_resize"]
