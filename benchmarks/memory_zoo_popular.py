"""Popular models of transformers and torchvision, built from configurations: real widths and vocabularies, few layers.

They widen the zoo of `memory_zoo` by what people train most. A third of them, `POPULAR_HELD_BACK`, is held back: it is
measured and forecast, but nobody looks at the errors of a single one of them while rules are changed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Batch = tuple[tuple[Any, ...], dict[str, Any]]
Batches = Callable[[int], Batch]


@dataclass(frozen=True)
class Popular:
    """One model: how it is built, what it reads, and at which batch sizes it is measured in fp32 and in bf16."""

    model: Callable[[], nn.Module]
    batch: Batches
    sizes: tuple[int, int]
    loss: Callable[[Any], Tensor]


def _hf(config: str, model: str, **settings: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import transformers

        made: nn.Module = getattr(transformers, model)(getattr(transformers, config)(**settings))
        return made

    build.__qualname__ = "_hf.build"
    return build


def _vision(name: str, **settings: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import torchvision.models
        import torchvision.models.segmentation
        import torchvision.models.video

        for room in (torchvision.models, torchvision.models.segmentation, torchvision.models.video):
            if hasattr(room, name):
                made: nn.Module = getattr(room, name)(**settings)
                return made
        raise AttributeError(name)

    build.__qualname__ = "_torchvision.<locals>.build"  # by which a benchmark knows that torchvision is needed
    return build


# -- what models read --------------------------------------------------------------------------------------------------


def _text(vocabulary: int, length: int) -> Batches:
    def batch(n: int) -> Batch:
        tokens = torch.randint(2, vocabulary, (n, length))
        return (), {"input_ids": tokens, "labels": tokens}

    return batch


def _sentences(vocabulary: int, length: int) -> Batches:
    def batch(n: int) -> Batch:
        tokens = torch.randint(2, vocabulary, (n, length))
        mask = torch.ones_like(tokens)
        mask[:, length * 3 // 4 :] = 0
        return (), {"input_ids": tokens, "attention_mask": mask, "labels": torch.zeros(n, dtype=torch.long)}

    return batch


def _translation(vocabulary: int, source: int, target: int) -> Batches:
    def batch(n: int) -> Batch:
        return (), {
            "input_ids": torch.randint(2, vocabulary, (n, source)),
            "labels": torch.randint(2, vocabulary, (n, target)),
        }

    return batch


def _pictures(size: int, labelled: bool = True) -> Batches:
    def batch(n: int) -> Batch:
        labels = {"labels": torch.zeros(n, dtype=torch.long)} if labelled else {}
        return (), {"pixel_values": torch.rand(n, 3, size, size), **labels}

    return batch


def _plain_pictures(size: int) -> Batches:
    return lambda n: ((torch.rand(n, 3, size, size),), {})


def _clips(frames: int, size: int) -> Batches:
    return lambda n: ((torch.rand(n, 3, frames, size, size),), {})


def _sound(samples: int, words: int = 12) -> Batches:
    def batch(n: int) -> Batch:
        return (), {"input_values": torch.randn(n, samples), "labels": torch.randint(1, 30, (n, words))}

    return batch


def _captions(vocabulary: int, length: int, size: int, **more: Any) -> Batches:
    def batch(n: int) -> Batch:
        tokens = torch.randint(2, vocabulary, (n, length))
        return (), {"input_ids": tokens, "pixel_values": torch.rand(n, 3, size, size), **more}

    return batch


def _series(length: int, channels: int, future: int) -> Batches:
    def batch(n: int) -> Batch:
        return (), {"past_values": torch.randn(n, length, channels), "future_values": torch.randn(n, future, channels)}

    return batch


# -- what becomes of their output --------------------------------------------------------------------------------------


def _own(output: Any) -> Tensor:
    loss: Tensor = output.loss
    return loss


def _classes(output: Any) -> Tensor:
    scores: Tensor = output if isinstance(output, Tensor) else output.logits
    return functional.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long, device=scores.device))


def _first_classes(output: Any) -> Tensor:
    """GoogLeNet and Inception give auxiliary classifiers too."""
    return _classes(output[0]) + sum(0.3 * _classes(other) for other in output[1:] if other is not None)


def _pixels(output: Any) -> Tensor:
    scores = output.logits if hasattr(output, "logits") else output["out"]
    labels = torch.zeros(len(scores), *scores.shape[2:], dtype=torch.long, device=scores.device)
    return functional.cross_entropy(scores, labels)


def _square(output: Any) -> Tensor:
    values: Tensor = output if isinstance(output, Tensor) else output.last_hidden_state
    return values.float().pow(2).mean()


POPULAR: dict[str, Popular] = {}


def _decoder(
    name: str, vocabulary: int, sizes: tuple[int, int], length: int = 256, model: str = "", **settings: Any
) -> None:
    """A causal language model: ``name`` as transformers spells it, before Config and ForCausalLM."""
    build = _hf(f"{name}Config", model or f"{name}ForCausalLM", vocab_size=vocabulary, use_cache=False, **settings)
    POPULAR[f"p_{name.lower()}"] = Popular(build, _text(vocabulary, length), sizes, _own)


def _layers(width: int, inner: int, heads: int, key_heads: int | None = None, layers: int = 2) -> dict[str, Any]:
    made = {
        "hidden_size": width, "intermediate_size": inner, "num_hidden_layers": layers, "num_attention_heads": heads,
    }  # fmt: skip
    return made if key_heads is None else {**made, "num_key_value_heads": key_heads}


# -- language: decoders ------------------------------------------------------------------------------------------------

_decoder("Llama", 128_256, (2, 6), 512, **_layers(2048, 8192, 32, 8), tie_word_embeddings=True)
_decoder("Qwen2", 151_936, (2, 6), 512, **_layers(896, 4864, 14, 2), tie_word_embeddings=True)
_decoder("Qwen3", 151_936, (2, 6), 512, **_layers(1024, 3072, 16, 8), head_dim=128, tie_word_embeddings=True)
_decoder("Mistral", 32_000, (2, 6), 512, **_layers(4096, 14_336, 32, 8, layers=1))
_decoder("Gemma", 256_000, (1, 3), 384, **_layers(2048, 16_384, 8, 1, layers=1), head_dim=256)
_decoder("Gemma2", 256_000, (1, 3), 384, **_layers(1152, 6912, 8, 4), head_dim=256)
_decoder("Gemma3Text", 262_144, (1, 3), 384, "Gemma3ForCausalLM", **_layers(1152, 6912, 4, 1), head_dim=256)
_decoder("Phi", 51_200, (2, 6), 512, **_layers(2048, 8192, 32))
_decoder("Phi3", 32_064, (2, 6), 512, **_layers(3072, 8192, 32, 32, layers=1), pad_token_id=0)
_decoder("Olmo2", 100_352, (2, 6), 384, **_layers(2048, 8192, 16, 16))
_decoder("Falcon", 65_024, (2, 6), 384, hidden_size=2048, num_hidden_layers=2, num_attention_heads=32, alibi=False)
_decoder("GPTNeoX", 50_304, (2, 8), 512, **_layers(1024, 4096, 16))
_decoder("GPTNeo", 50_257, (2, 8), 512, hidden_size=768, num_layers=2, num_heads=12,
         attention_types=[[["global", "local"], 1]])  # fmt: skip
_decoder("GPTJ", 50_400, (2, 6), 384, n_embd=2048, n_layer=2, n_head=16)
_decoder("Bloom", 250_880, (2, 5), 256, hidden_size=1024, n_layer=2, n_head=16)
_decoder("GPTBigCode", 49_152, (2, 8), 512, n_embd=1024, n_layer=2, n_head=16)
_decoder("Starcoder2", 49_152, (2, 6), 512, **_layers(3072, 12_288, 24, 2, layers=1))
_decoder("StableLm", 100_352, (2, 5), 384, **_layers(2048, 5632, 32, 32))
_decoder("Granite", 49_155, (2, 6), 384, **_layers(2048, 8192, 32, 8))
_decoder("Cohere", 256_000, (1, 3), 256, **_layers(1536, 6144, 16, 16))
_decoder("Mamba", 50_280, (2, 6), 128, hidden_size=768, num_hidden_layers=2)
_decoder("Mixtral", 32_000, (2, 6), 384, **_layers(1024, 3584, 16, 4), num_local_experts=8)
_decoder("Qwen2Moe", 151_936, (2, 4), 256, **_layers(1024, 2816, 16, 16), moe_intermediate_size=704,
         shared_expert_intermediate_size=2816, num_experts=16, num_experts_per_tok=4)  # fmt: skip
_decoder("Qwen3Moe", 151_936, (2, 4), 256, **_layers(1024, 3072, 16, 4), moe_intermediate_size=768, num_experts=32,
         num_experts_per_tok=8, head_dim=128)  # fmt: skip
_decoder("Olmoe", 50_304, (2, 6), 256, **_layers(1024, 1024, 16, 16), num_experts=32, num_experts_per_tok=8)

# -- language: encoders and sequence to sequence -----------------------------------------------------------------------


def _encoder(name: str, vocabulary: int, sizes: tuple[int, int], length: int = 128, **settings: Any) -> None:
    build = _hf(f"{name}Config", f"{name}ForSequenceClassification", vocab_size=vocabulary, **settings)
    POPULAR[f"p_{name.lower()}"] = Popular(build, _sentences(vocabulary, length), sizes, _own)


_BASE = _layers(768, 3072, 12, layers=3)
_encoder("Bert", 30_522, (16, 64), **_BASE)
_encoder("XLMRoberta", 250_002, (12, 48), max_position_embeddings=514, **_BASE)
_encoder("Albert", 30_000, (16, 64), 192, **_layers(768, 3072, 12, layers=6))
_encoder("Electra", 30_522, (32, 128), **_layers(256, 1024, 4, layers=4))
_encoder("DebertaV2", 128_100, (8, 32), relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=256,
         norm_rel_ebd="layer_norm", share_att_key=True, max_relative_positions=-1, **_BASE)  # fmt: skip
_encoder("MPNet", 30_527, (16, 64), **_BASE)
_encoder("ModernBert", 50_368, (8, 32), 256, **_layers(768, 1152, 12, layers=4))
_encoder("Longformer", 50_265, (2, 8), 1024, attention_window=[256, 256], max_position_embeddings=1026,
         **_layers(768, 3072, 12, layers=2))  # fmt: skip
_encoder("Esm", 33, (8, 24), 256, pad_token_id=1, mask_token_id=32, max_position_embeddings=1026,
         position_embedding_type="rotary", **_layers(640, 2560, 20, layers=4))  # fmt: skip

for _name, _vocabulary, _sizes, _settings in (
    ("T5", 32_128, (8, 32), {"d_model": 768, "d_ff": 3072, "num_layers": 3, "num_heads": 12}),
    ("MT5", 250_112, (4, 16), {"d_model": 512, "d_ff": 1024, "num_layers": 3, "num_heads": 6}),
    ("Bart", 50_265, (8, 32), {"d_model": 768, "encoder_layers": 2, "decoder_layers": 2}),
    ("Pegasus", 96_103, (4, 16), {"d_model": 1024, "encoder_layers": 2, "decoder_layers": 2}),
    ("M2M100", 128_112, (4, 16), {"d_model": 1024, "encoder_layers": 2, "decoder_layers": 2}),
):
    POPULAR[f"p_{_name.lower()}"] = Popular(
        _hf(f"{_name}Config", f"{_name}ForConditionalGeneration", vocab_size=_vocabulary, decoder_start_token_id=0,
            **_settings), _translation(_vocabulary, 160, 64), _sizes, _own,
    )  # fmt: skip
POPULAR["p_marian"] = Popular(
    _hf("MarianConfig", "MarianMTModel", vocab_size=58_101, d_model=512, encoder_layers=3, decoder_layers=3,
        encoder_ffn_dim=2048, decoder_ffn_dim=2048, encoder_attention_heads=8, decoder_attention_heads=8,
        pad_token_id=0, decoder_start_token_id=0), _translation(58_000, 96, 96), (16, 64), _own,
)  # fmt: skip

# -- pictures ----------------------------------------------------------------------------------------------------------

for _name, _size, _sizes, _settings in (
    ("DeiT", 224, (16, 96), _BASE),
    ("Beit", 224, (16, 64), _BASE),
    (
        "Dinov2",
        224,
        (16, 64),
        {"hidden_size": 384, "num_attention_heads": 6, "num_hidden_layers": 4, "image_size": 224},
    ),
    ("Swinv2", 256, (8, 32), {"image_size": 256, "window_size": 8}),
    ("ConvNextV2", 224, (8, 40), {}),
    ("MobileViT", 256, (8, 48), {"image_size": 256}),
    ("ResNet", 224, (8, 56), {}),
    ("PvtV2", 224, (8, 32), {"image_size": 224}),
):
    POPULAR[f"p_{_name.lower()}"] = Popular(
        _hf(f"{_name}Config", f"{_name}ForImageClassification", **_settings), _pictures(_size), _sizes, _own
    )
POPULAR["p_vitmae"] = Popular(
    _hf("ViTMAEConfig", "ViTMAEForPreTraining", **_BASE, decoder_num_hidden_layers=2), _pictures(224, labelled=False),
    (16, 96), _own,
)  # fmt: skip
POPULAR["p_segformer"] = Popular(
    _hf("SegformerConfig", "SegformerForSemanticSegmentation", num_labels=19), _pictures(256, labelled=False), (4, 24),
    _pixels,
)  # fmt: skip
POPULAR["p_dpt"] = Popular(
    _hf("DPTConfig", "DPTForSemanticSegmentation", hidden_size=384, num_hidden_layers=6, num_attention_heads=6,
        intermediate_size=1536, image_size=224, backbone_out_indices=[1, 2, 4, 5], num_labels=19,
        neck_hidden_sizes=[48, 96, 192, 384]), _pictures(224, labelled=False), (4, 20), _pixels,
)  # fmt: skip

# -- sound, captions, series -------------------------------------------------------------------------------------------

for _name in ("Wav2Vec2", "Hubert", "WavLM"):
    POPULAR[f"p_{_name.lower()}"] = Popular(
        _hf(f"{_name}Config", f"{_name}ForCTC", vocab_size=32, **_BASE, mask_time_prob=0.0), _sound(32_000), (3, 12),
        _own,
    )  # fmt: skip
POPULAR["p_whisper"] = Popular(
    _hf("WhisperConfig", "WhisperForConditionalGeneration", d_model=384, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=6, decoder_attention_heads=6, encoder_ffn_dim=1536, decoder_ffn_dim=1536),
    lambda n: ((), {"input_features": torch.randn(n, 80, 3000), "labels": torch.randint(0, 50_000, (n, 48))}),
    (3, 12), _own,
)  # fmt: skip
POPULAR["p_ast"] = Popular(
    _hf("ASTConfig", "ASTForAudioClassification", **_layers(768, 3072, 12, layers=2), max_length=512),
    lambda n: ((), {"input_values": torch.randn(n, 512, 128), "labels": torch.zeros(n, dtype=torch.long)}),
    (4, 16), _own,
)  # fmt: skip
_TEXT = _layers(512, 2048, 8, layers=3)
POPULAR["p_clip"] = Popular(
    _hf("CLIPConfig", "CLIPModel", text_config={**_TEXT, "vocab_size": 49_408},
        vision_config={**_layers(768, 3072, 12, layers=3), "patch_size": 32}),
    _captions(49_000, 77, 224, return_loss=True), (16, 96), _own,
)  # fmt: skip
POPULAR["p_siglip"] = Popular(
    _hf("SiglipConfig", "SiglipModel", text_config={**_layers(768, 3072, 12, layers=2), "vocab_size": 32_000},
        vision_config=_layers(768, 3072, 12, layers=2)),
    _captions(32_000, 64, 224, return_loss=True), (8, 48), _own,
)  # fmt: skip
POPULAR["p_blip"] = Popular(
    _hf("BlipConfig", "BlipForConditionalGeneration",
        text_config={**_layers(768, 3072, 12, layers=2), "vocab_size": 30_524, "encoder_hidden_size": 768},
        vision_config={**_layers(768, 3072, 12, layers=2), "image_size": 224}),
    lambda n: ((), {
        "input_ids": torch.ones(n, 32, dtype=torch.long), "pixel_values": torch.rand(n, 3, 224, 224),
        "labels": torch.ones(n, 32, dtype=torch.long),
    }), (8, 32), _own,
)  # fmt: skip
POPULAR["p_patchtst"] = Popular(
    _hf("PatchTSTConfig", "PatchTSTForPrediction", num_input_channels=7, context_length=512, prediction_length=96,
        patch_length=16, patch_stride=8, d_model=128, num_attention_heads=16, ffn_dim=256, num_hidden_layers=3),
    _series(512, 7, 96), (16, 128), _own,
)  # fmt: skip
POPULAR["p_patchtsmixer"] = Popular(
    _hf("PatchTSMixerConfig", "PatchTSMixerForPrediction", num_input_channels=7, context_length=512,
        prediction_length=96, patch_length=16, patch_stride=8, d_model=64, num_layers=4),
    _series(512, 7, 96), (16, 128), _own,
)  # fmt: skip

# -- torchvision -------------------------------------------------------------------------------------------------------

for _name, _size, _sizes in (
    ("resnet152", 192, (4, 24)), ("wide_resnet101_2", 160, (4, 24)), ("densenet201", 160, (4, 24)),
    ("efficientnet_b3", 300, (4, 16)), ("efficientnet_v2_m", 224, (4, 20)), ("regnet_y_8gf", 176, (4, 28)),
    ("regnet_x_3_2gf", 208, (8, 40)), ("swin_v2_t", 224, (4, 28)), ("maxvit_t", 224, (4, 20)),
    ("vgg19_bn", 160, (8, 32)), ("mnasnet0_5", 224, (16, 96)), ("shufflenet_v2_x0_5", 192, (32, 160)),
):  # fmt: skip
    POPULAR[f"p_{_name}"] = Popular(_vision(_name), _plain_pictures(_size), _sizes, _classes)
for _name, _size, _sizes in (("googlenet", 224, (16, 72)), ("inception_v3", 299, (4, 28))):
    POPULAR[f"p_{_name}"] = Popular(
        _vision(_name, init_weights=False, weights=None), _plain_pictures(_size), _sizes, _first_classes
    )
for _name, _sizes in (("fcn_resnet50", (2, 8)), ("deeplabv3_resnet50", (2, 8)), ("lraspp_mobilenet_v3_large", (4, 32))):
    POPULAR[f"p_{_name}"] = Popular(
        _vision(_name, weights=None, weights_backbone=None, num_classes=21), _plain_pictures(256), _sizes, _pixels
    )
for _name, _size, _sizes in (("r3d_18", 80, (2, 10)), ("r2plus1d_18", 80, (2, 8)), ("s3d", 224, (1, 4))):
    POPULAR[f"p_{_name}"] = Popular(_vision(_name), _clips(16, _size), _sizes, _classes)

# Two that led to rules: cuDNN's batch norm of transposed sequences, and lengths divided by torch.div.
_LED_TO_RULES = {"p_patchtst": "p_patchtsmixer", "p_longformer": "p_esm"}
# Every third, by its place in the list above, with a neighbour in the place of each of those two: chosen before
# anything of it was measured.
POPULAR_HELD_BACK = frozenset(_LED_TO_RULES.get(name, name) for name in list(POPULAR)[2::3])
