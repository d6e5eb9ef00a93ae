from brim.workloads.recommender.encoders.texts_read import TextsRead


def test_texts_are_counted_and_told():
    texts = TextsRead()
    assert texts.ratio == 1.0
    texts.add(occurred=6144, encoded=2000)
    texts.add(occurred=6144, encoded=2096)
    assert str(texts) == "texts: 4,096 were encoded where 12,288 occurred in batches, 3.0x fewer"
    texts.clear()
    assert (texts.occurred, texts.encoded) == (0, 0)
