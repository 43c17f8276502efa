"""RapidOCR as a reader: lines with boxes and confidences, in the project's own reading order.

Its detector finds the lines, its recogniser reads them one by one; the angle classifier between the
two is left out, since it turns lines that were upright. Its default for what is worth keeping (a
confidence of 0.5) stays. Both models are files of its own wheel: nothing is downloaded.
"""

import time
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from vlmcli.documents.lines import join_text
from vlmcli.documents.lines.boxes import order_boxes
from vlmcli.errors import PageError
from vlmcli.memory.allocator import give_back
from vlmcli.rapidocr import MAX_SIDE, MOST_LOPSIDED, RapidOcrFiles
from vlmcli.readers.one_by_one import IsStopped
from vlmcli.reading import PageJob, PageReading
from vlmcli.results import Line, Seconds

Pixels = npt.NDArray[np.uint8]
Quads = npt.NDArray[np.float64]

_LINE_HEIGHT = 48
"""Pixels: what the recogniser scales every line to."""
_WIDEST = 40
"""Line heights in the picture of a line; wider ones are cut. A step of the recogniser gives a
probability for each of 18,000 characters at every 8 pixels, so that width is memory."""
_TALL = 1.5
"""Height over width from which a box is a line that runs upwards: RapidOCR's own bound."""
_LEAST_CONFIDENCE = 0.5


class RapidOcrModel:
    """A `one_by_one.PageModel` around RapidOCR.

    Args:
        files: its models.
        num_threads: of each of its two sessions, which run one after the other.
    """

    def __init__(self, files: RapidOcrFiles, *, num_threads: int) -> None:
        from rapidocr import RapidOCR
        from rapidocr.inference_engine.onnxruntime.main import ONNXRuntimeError
        from rapidocr.utils.process_img import ResizeImgError

        self._failures = (ONNXRuntimeError, ResizeImgError, cv2.error, ValueError, IndexError)
        cv2.setNumThreads(num_threads)
        self._engine: Any = RapidOCR(
            params={
                "Global.log_level": "critical",
                "Global.use_cls": False,
                "Global.max_side_len": MAX_SIDE,
                "Det.model_path": str(files.detector),
                "Rec.model_path": str(files.recogniser),
                "Rec.rec_batch_num": 1,
                "EngineConfig.onnxruntime.intra_op_num_threads": num_threads,
                "EngineConfig.onnxruntime.inter_op_num_threads": 1,
            }
        )
        self._num_lines = 0

    def read(self, job: PageJob, is_stopped: IsStopped) -> PageReading:
        """Find the lines of a page and read them.

        Raises:
            PageError: RapidOCR fails on this picture.
        """
        assert job.picture is not None, "RapidOCR needs the page's picture"
        started = time.perf_counter()
        quads = self._find(job.picture)
        found = time.perf_counter()
        texts: list[str] = []
        scores: list[float] = []
        for quad in quads:
            if is_stopped():
                break
            text, score = self._read_line(job.picture, quad)
            texts.append(text)
            scores.append(score)
        seconds = Seconds(encode=found - started, decode=time.perf_counter() - found)
        self._num_lines += len(texts)
        give_back()
        return _page(job.key, quads, texts, scores, seconds)

    def drop_caches(self) -> None:
        """Nothing is kept from page to page."""

    def device_bytes(self) -> int:
        """It runs on the processor."""
        return 0

    def stats(self) -> dict[str, float]:
        """How many lines were read."""
        return {"lines_read": self._num_lines}

    def _find(self, picture: Pixels) -> Quads:
        """Corners of the lines, float64 (N, 4, 2) pixels of the page."""
        small, scale = _for_detector(picture)
        found = self._run(small, use_det=True, use_rec=False)
        boxes = getattr(found, "boxes", None)
        if boxes is None or not len(boxes):
            return np.empty((0, 4, 2))
        quads = np.asarray(boxes, np.float64) / scale
        height, width = picture.shape[:2]
        return np.clip(quads, 0.0, (float(width), float(height)))

    def _read_line(self, picture: Pixels, quad: Quads) -> tuple[str, float]:
        """Text and confidence, 0 to 1, of one line; those of its parts where it was cut."""
        strip = _straightened(picture, quad)
        words, weights = [], []
        for part in _parts(strip):
            found = self._run(part, use_det=False, use_rec=True)
            if found.txts:
                words.append(str(found.txts[0]).strip())
                weights.append((float(found.scores[0]), part.shape[1]))
        total = sum(width for _, width in weights)
        score = sum(score * width for score, width in weights) / total if total else 0.0
        return " ".join(word for word in words if word), score

    def _run(self, pixels: Pixels, *, use_det: bool, use_rec: bool) -> Any:
        try:
            return self._engine(pixels, use_det=use_det, use_cls=False, use_rec=use_rec)
        except self._failures as error:
            # onnxruntime's failed allocations come like everything else, as a text.
            if "alloc" in str(error).lower():
                raise MemoryError(str(error)) from error
            cause = str(error).strip().rpartition("\n")[2]
            raise PageError(f"RapidOCR failed: {cause}", code="read") from error


def _for_detector(picture: Pixels) -> tuple[Pixels, float]:
    """The page in BGR as the detector takes it, and its scale: smaller, and padded where narrow."""
    height, width = picture.shape[:2]
    scale = min(1.0, MAX_SIDE / max(width, height))
    if scale < 1.0:
        size = max(1, round(width * scale)), max(1, round(height * scale))
        picture = np.asarray(cv2.resize(picture, size, interpolation=cv2.INTER_AREA), np.uint8)
        height, width = picture.shape[:2]
    right = max(0, -(-height // MOST_LOPSIDED) - width)
    below = max(0, -(-width // MOST_LOPSIDED) - height)
    bgr = np.ascontiguousarray(picture[:, :, ::-1])
    if right or below:
        ground = [int(value) for value in np.median(bgr[:, -1], axis=0)]
        bgr = np.asarray(
            cv2.copyMakeBorder(bgr, 0, below, 0, right, cv2.BORDER_CONSTANT, value=ground)
        )
    return bgr, scale


def _straightened(picture: Pixels, quad: Quads) -> Pixels:
    """The picture of a line in BGR, upright and `_LINE_HEIGHT` high: uint8 (48, W, 3)."""
    across = max(np.linalg.norm(quad[1] - quad[0]), np.linalg.norm(quad[2] - quad[3]))
    down = max(np.linalg.norm(quad[3] - quad[0]), np.linalg.norm(quad[2] - quad[1]))
    width, height = max(1, round(float(across))), max(1, round(float(down)))
    corners = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float32)
    turn = cv2.getPerspectiveTransform(quad.astype(np.float32), corners)
    strip = cv2.warpPerspective(
        picture, turn, (width, height), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE
    )
    if height >= _TALL * width:
        strip = np.rot90(strip)
    rows, columns = strip.shape[:2]
    size = max(_LINE_HEIGHT // 2, round(columns * _LINE_HEIGHT / rows)), _LINE_HEIGHT
    method = cv2.INTER_AREA if rows > _LINE_HEIGHT else cv2.INTER_LINEAR
    scaled = cv2.resize(np.ascontiguousarray(strip), size, interpolation=method)
    return np.ascontiguousarray(scaled[:, :, ::-1])


def _parts(strip: Pixels) -> list[Pixels]:
    """A line cut into pieces that are narrow enough, where its columns differ least: in gaps."""
    limit = _WIDEST * _LINE_HEIGHT
    parts = []
    while strip.shape[1] > limit:
        # Somewhere in the last quarter, so that the pieces stay few.
        start = limit - limit // 4
        ink = np.ptp(strip[:, start:limit].astype(np.int16), axis=0).sum(axis=1)
        blur = np.convolve(ink, np.ones(9), mode="same")
        cut = start + int(np.argmin(blur))
        parts.append(np.ascontiguousarray(strip[:, :cut]))
        strip = strip[:, cut:]
    return [*parts, np.ascontiguousarray(strip)]


def _page(
    key: int, quads: Quads, texts: list[str], scores: list[float], seconds: Seconds
) -> PageReading:
    """The reading of a page from what its boxes say, those without a text left out."""
    kept = [
        i
        for i, (text, score) in enumerate(zip(texts, scores, strict=True))
        if text and score >= _LEAST_CONFIDENCE
    ]
    quads = quads[kept]
    texts, scores = [texts[i] for i in kept], [scores[i] for i in kept]
    placed = order_boxes(quads, texts)
    lines = tuple(
        Line(bbox=_bbox(quads[i]), text=texts[i], confidence=round(scores[i], 2)) for i, _ in placed
    )
    return PageReading(
        key=key,
        text=join_text([place for _, place in placed], [line.text for line in lines]),
        lines=lines,
        suspect=() if lines else ("no-text-found",),
        seconds=seconds,
    )


def _bbox(quad: Quads) -> tuple[int, int, int, int]:
    x0, y0 = np.floor(quad.min(axis=0)).astype(int).tolist()
    x1, y1 = np.ceil(quad.max(axis=0)).astype(int).tolist()
    return x0, y0, x1, y1
