"""A tiny random LLaVA with its processor, as transformers writes them. Nothing here asserts.

LLaVA is a family that the engine does not run.
"""

from pathlib import Path

import torch
from transformers import (
    CLIPImageProcessorPil,
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
)

from vlmcli.checkpoint import built_in_path

IMAGE_TOKEN = "<image>"
CHAT = (
    "{% for message in messages %}USER: {% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>\n{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endfor %}{% if add_generation_prompt %} ASSISTANT:{% endif %}"
)


def write_llava(path: Path, *, chat_template: str | None = CHAT, seed: int = 0) -> Path:
    """A checkpoint whose tokenizer knows every byte; its answers are random, and differ by page."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(built_in_path() / "tokenizer.json"), pad_token="<|pad|>"
    )
    tokenizer.add_special_tokens({"additional_special_tokens": [IMAGE_TOKEN]})
    eos = 259
    tokenizer.eos_token = tokenizer.convert_ids_to_tokens(eos)
    image_token = tokenizer.convert_tokens_to_ids(IMAGE_TOKEN)
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            image_size=56,
            patch_size=14,
        ),
        text_config=LlamaConfig(
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            vocab_size=len(tokenizer),
            max_position_embeddings=512,
            bos_token_id=None,
            eos_token_id=eos,
        ),
        image_token_id=image_token,
        vision_feature_layer=-1,
    )
    torch.manual_seed(seed)
    model = LlavaForConditionalGeneration(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.copy_(torch.randn_like(parameter) / parameter[0].numel() ** 0.5 * 1.5)
    model.generation_config.eos_token_id = eos
    model.generation_config.pad_token_id = eos
    model.save_pretrained(path)
    pixels = CLIPImageProcessorPil(
        size={"shortest_edge": 56}, crop_size={"height": 56, "width": 56}
    )
    LlavaProcessor(
        image_processor=pixels,
        tokenizer=tokenizer,
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        image_token=IMAGE_TOKEN,
        chat_template=chat_template,
    ).save_pretrained(path)
    return path
