"""CLIP by our own exact and fast code: weights, tokenizer, text tower, image towers."""
