"""Picture size to visual tokens, one pure function per model family.

The planner and the preprocessor call the same functions, so that a plan made from page sizes is the
plan of the pixels that come later. No pixels, no files, no torch.
"""

from vlmcli.engine.geometry.anyres import (
    LIGHTON_OCR,
    LLAVA_ONEVISION,
    PIXTRAL,
    LlavaOneVisionConfig,
    PixtralConfig,
    llava_onevision,
    pixtral,
)
from vlmcli.engine.geometry.base import ImageGeometry, Measure
from vlmcli.engine.geometry.families import (
    QWEN3_VL,
    idefics3_config,
    llava_onevision_config,
    measure_for,
    smart_resize_config,
    tile_config,
)
from vlmcli.engine.geometry.smart_resize import (
    GLM4V,
    PADDLEOCR_VL,
    QWEN2_VL,
    SmartResizeConfig,
    glm4v,
    paddleocr_vl,
    qwen2_vl,
    smart_resize,
)
from vlmcli.engine.geometry.tiles import (
    DEEPSEEK_OCR,
    DEEPSEEK_OCR2,
    GRANITE_DOCLING,
    IDEFICS3,
    INTERNVL,
    SMOLVLM,
    DeepSeekOcrConfig,
    GraniteDoclingConfig,
    Idefics3Config,
    TileConfig,
    deepseek_ocr,
    deepseek_ocr2,
    granite_docling,
    idefics3,
    idefics3_resized,
    internvl,
)

__all__ = [
    "DEEPSEEK_OCR",
    "DEEPSEEK_OCR2",
    "GLM4V",
    "GRANITE_DOCLING",
    "IDEFICS3",
    "INTERNVL",
    "LIGHTON_OCR",
    "LLAVA_ONEVISION",
    "PADDLEOCR_VL",
    "PIXTRAL",
    "QWEN2_VL",
    "QWEN3_VL",
    "SMOLVLM",
    "DeepSeekOcrConfig",
    "GraniteDoclingConfig",
    "Idefics3Config",
    "ImageGeometry",
    "LlavaOneVisionConfig",
    "Measure",
    "PixtralConfig",
    "SmartResizeConfig",
    "TileConfig",
    "deepseek_ocr",
    "deepseek_ocr2",
    "glm4v",
    "granite_docling",
    "idefics3",
    "idefics3_config",
    "idefics3_resized",
    "internvl",
    "llava_onevision",
    "llava_onevision_config",
    "measure_for",
    "paddleocr_vl",
    "pixtral",
    "qwen2_vl",
    "smart_resize",
    "smart_resize_config",
    "tile_config",
]
