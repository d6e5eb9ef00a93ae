from brim.hardware.tiers import TIER_MEANS, TIERS, most_gpus


def test_smaller_cards_have_smaller_batches_and_fewer_gpus():
    assert [(tier.batch_size, tier.use_cache, tier.gpus) for tier in TIERS.values()] == [
        (2048, True, 8),
        (1024, True, 4),
        (512, False, 2),
    ]
    assert [most_gpus(name) for name in (*TIERS, None)] == [8, 4, 2, None]
    assert all(f"{name}:" in TIER_MEANS for name in TIERS)
