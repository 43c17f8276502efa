"""Which geometry function a checkpoint needs, and with which settings, from its JSON.

Pure: takes the parsed `config.json` and `preprocessor_config.json`, opens no file. Settings that a
checkpoint does not carry are the class defaults of transformers 5.24.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from vlmcli.engine.geometry.anyres import (
    LIGHTON_OCR,
    LLAVA_ONEVISION,
    LlavaOneVisionConfig,
    PixtralConfig,
    llava_onevision,
    pixtral,
)
from vlmcli.engine.geometry.base import ImageGeometry, Measure
from vlmcli.engine.geometry.resampled import IDEFICS2, Idefics2Config, idefics2
from vlmcli.engine.geometry.smart_resize import (
    GLM4V,
    PADDLEOCR_VL,
    QWEN2_VL,
    SmartResizeConfig,
    glm4v,
    paddleocr_vl,
    qwen2_vl,
)
from vlmcli.engine.geometry.tiles import (
    DeepSeekOcrConfig,
    GraniteDoclingConfig,
    Idefics3Config,
    TileConfig,
    deepseek_ocr,
    granite_docling,
    idefics3,
    internvl,
)
from vlmcli.errors import ModelError

Config = Mapping[str, Any]
QWEN3_VL = SmartResizeConfig(patch_size=16, min_pixels=65_536, max_pixels=16_777_216)
"""What the published checkpoints carry; transformers uses Qwen2-VL's processor class for it."""


def measure_for(model_type: str, config: Config, preprocessor: Config) -> Measure:
    """The geometry of a model, with the checkpoint's own settings bound in.

    Args:
        model_type: as in `config.json`.
        config: `config.json`.
        preprocessor: `preprocessor_config.json`, or empty.

    Raises:
        ValueError: the family has no geometry here.
    """
    builder = _BUILDERS.get(model_type)
    if builder is None:
        raise ValueError(f"no geometry for model type {model_type!r}")
    return builder(config, preprocessor)


def smart_resize_config(
    preprocessor: Config, defaults: SmartResizeConfig = QWEN2_VL
) -> SmartResizeConfig:
    """Patch sizes and pixel limits of a grid family, as its processor class reads them.

    `min_pixels` and `max_pixels` win over `size`, whose edges mean pixel counts here.
    """
    size = preprocessor.get("size") or {}
    return SmartResizeConfig(
        patch_size=int(preprocessor.get("patch_size", defaults.patch_size)),
        merge_size=int(preprocessor.get("merge_size", defaults.merge_size)),
        temporal_patch_size=int(
            preprocessor.get("temporal_patch_size", defaults.temporal_patch_size)
        ),
        min_pixels=int(
            preprocessor.get("min_pixels") or size.get("shortest_edge", defaults.min_pixels)
        ),
        max_pixels=int(
            preprocessor.get("max_pixels") or size.get("longest_edge", defaults.max_pixels)
        ),
    )


def _grid(
    function: Callable[[int, int, SmartResizeConfig], ImageGeometry], defaults: SmartResizeConfig
) -> Callable[[Config, Config], Measure]:
    def build(config: Config, preprocessor: Config) -> Measure:
        settings = smart_resize_config(preprocessor, defaults)

        def measure(width: int, height: int) -> ImageGeometry:
            return function(width, height, settings)

        return measure

    return build


def tile_config(config: Config, preprocessor: Config) -> TileConfig:
    """InternVL's tiles; the tower's own picture size where the processor names none."""
    vision = config.get("vision_config") or {}
    patch = _side(vision.get("patch_size", 14))
    size = preprocessor.get("size")
    tile = _side(size["height"]) if isinstance(size, Mapping) and "height" in size else None
    tile = tile or _side(config.get("force_image_size") or vision.get("image_size", 448))
    ratio = float(config.get("downsample_ratio", 0.5))
    return TileConfig(
        tile_size=tile,
        patch_size=patch,
        min_tiles=int(preprocessor.get("min_patches", config.get("min_dynamic_patch", 1))),
        max_tiles=int(preprocessor.get("max_patches", config.get("max_dynamic_patch", 12))),
        tokens_per_tile=int((tile // patch) ** 2 * ratio**2),
    )


def idefics3_config(config: Config, preprocessor: Config) -> Idefics3Config:
    """Tiles of Idefics3 and SmolVLM."""
    vision = config.get("vision_config") or {}
    size = preprocessor.get("size") or {}
    tile = (preprocessor.get("max_image_size") or {}).get("longest_edge")
    defaults = Idefics3Config()
    return Idefics3Config(
        longest_edge=int(size.get("longest_edge", defaults.longest_edge)),
        tile_size=int(tile or defaults.tile_size),
        patch_size=_side(vision.get("patch_size", 32)),
        scale_factor=int(config.get("scale_factor", 2)),
        do_image_splitting=bool(preprocessor.get("do_image_splitting", True)),
    )


def idefics2_config(config: Config, preprocessor: Config) -> Idefics2Config:
    """Idefics2's edges, patch size and number of tokens.

    Raises:
        ModelError: pictures are to be cut into quarters beside the whole, which nothing here does.
    """
    if preprocessor.get("do_image_splitting", False):
        raise ModelError(
            "idefics2 with do_image_splitting is not supported",
            remedy="set it to false in preprocessor_config.json: pages are then shown whole",
        )
    size = preprocessor.get("size") or {}
    vision, perceiver = (config.get(part) or {} for part in ("vision_config", "perceiver_config"))
    return Idefics2Config(
        shortest_edge=int(size.get("shortest_edge", IDEFICS2.shortest_edge)),
        longest_edge=int(size.get("longest_edge", IDEFICS2.longest_edge)),
        patch_size=_side(vision.get("patch_size", 32)),
        num_latents=int(perceiver.get("resampler_n_latents", IDEFICS2.num_latents)),
    )


def _idefics2(config: Config, preprocessor: Config) -> Measure:
    return partial(idefics2, config=idefics2_config(config, preprocessor))


def _granite_docling(config: Config, preprocessor: Config) -> Measure:
    defaults = GraniteDoclingConfig()
    return partial(
        granite_docling,
        config=GraniteDoclingConfig(
            tile_size=int((preprocessor.get("size") or {}).get("height", defaults.tile_size)),
            min_tiles=int(preprocessor.get("min_patches", defaults.min_tiles)),
            max_tiles=int(preprocessor.get("max_patches", defaults.max_tiles)),
            # The router may choose the fine path for any page: a plan must have room for it.
            fine=bool(
                preprocessor.get("fine_route", False) or config.get("density_router_hidden_size")
            ),
            dense_max_tiles=int(preprocessor.get("dense_max_patches", 0)),
            dense_max_scale=float(preprocessor.get("dense_max_scale", 0.0)),
            dense_min_aspect=float(preprocessor.get("dense_min_aspect", 0.0)),
            dense_max_aspect=float(preprocessor.get("dense_max_aspect", 0.0)),
        ),
    )


def llava_onevision_config(config: Config, preprocessor: Config) -> LlavaOneVisionConfig:
    """LLaVA-OneVision's canvases and the most tokens that it keeps of one."""
    vision = config.get("vision_config") or {}
    tile = _side(vision.get("image_size", LLAVA_ONEVISION.tile_size))
    pinpoints = preprocessor.get("image_grid_pinpoints") or config.get("image_grid_pinpoints")
    strategy = str(config.get("vision_aspect_ratio", "anyres_max_9"))
    patch = _side(vision.get("patch_size", LLAVA_ONEVISION.patch_size))
    return LlavaOneVisionConfig(
        tile_size=tile,
        patch_size=patch,
        side=tile // patch,
        max_tiles=int(strategy.rsplit("_", 1)[-1]),
        pinpoints=tuple((int(h), int(w)) for h, w in pinpoints)
        if pinpoints
        else LLAVA_ONEVISION.pinpoints,
    )


def _pixtral(config: Config, preprocessor: Config) -> Measure:
    vision = config.get("vision_config") or {}
    is_lighton = config.get("model_type") == "lighton_ocr" or "LightOnOCR" in str(
        config.get("architectures", "")
    )
    patch = _side(vision.get("patch_size", LIGHTON_OCR.patch_size))
    merge = int(config.get("spatial_merge_size", 2))
    size = preprocessor.get("size") or {}
    # Pixtral's processor overrides the picture processor's patch size with whole merged patches,
    # LightOnOCR's does not.
    align = _side(preprocessor.get("patch_size", patch)) if is_lighton else patch * merge
    return partial(
        pixtral,
        config=PixtralConfig(
            patch_size=patch,
            merge_size=merge,
            longest_edge=int(size.get("longest_edge", LIGHTON_OCR.longest_edge)),
            align=align,
            has_breaks=not is_lighton,
        ),
    )


def _deepseek_ocr(config: Config, preprocessor: Config) -> Measure:
    is_unlimited = config.get("model_type") == "unlimited_ocr"
    return partial(
        deepseek_ocr,
        config=DeepSeekOcrConfig(
            max_tiles=int(preprocessor.get("max_patches", 32 if is_unlimited else 6))
        ),
    )


def _side(value: Any) -> int:
    if isinstance(value, Mapping):
        return int(value["height"])
    return int(value[0] if isinstance(value, list | tuple) else value)


def _tiled(config: Config, preprocessor: Config) -> Measure:
    return partial(internvl, config=tile_config(config, preprocessor))


def _idefics3(config: Config, preprocessor: Config) -> Measure:
    return partial(idefics3, config=idefics3_config(config, preprocessor))


def _llava_onevision(config: Config, preprocessor: Config) -> Measure:
    return partial(llava_onevision, config=llava_onevision_config(config, preprocessor))


_BUILDERS: dict[str, Callable[[Config, Config], Measure]] = {
    "deepseek_ocr": _deepseek_ocr,
    "deepseek_vl_v2": _deepseek_ocr,
    "dots_ocr": _grid(qwen2_vl, QWEN2_VL),
    "glm4v": _grid(glm4v, GLM4V),
    "glm_ocr": _grid(glm4v, GLM4V),
    "granite_docling": _granite_docling,
    "idefics2": _idefics2,
    "idefics3": _idefics3,
    "internvl": _tiled,
    "internvl_chat": _tiled,
    "lighton_ocr": _pixtral,
    "llava_onevision": _llava_onevision,
    "mistral3": _pixtral,
    "paddleocr_vl": _grid(paddleocr_vl, PADDLEOCR_VL),
    "qwen2_5_vl": _grid(qwen2_vl, QWEN2_VL),
    "qwen2_vl": _grid(qwen2_vl, QWEN2_VL),
    "qwen3_vl": _grid(qwen2_vl, QWEN3_VL),
    "smolvlm": _idefics3,
    "unlimited_ocr": _deepseek_ocr,
}
