"""RoBERTa's special ids, for models and batches that need a number and no tokenizer.

They stand by themselves because `jaxsens.text.tokenization`, which has the texts to them, loads the
tokenizers library.
"""

#: `<s>`, `<pad>`, `</s>`, `<unk>`.
CLS_ID, PAD_ID, SEP_ID, UNK_ID = range(4)
