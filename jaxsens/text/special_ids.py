"""RoBERTa's special ids, for models and batches that need a number and no tokenizer.

They stand by themselves because `jaxsens.text.tokenization`, which has the texts to them, loads the
tokenizers library.
"""

#: `<s>`, the first token of a text.
CLS_ID = 0
#: `<pad>`, which fills a batch up.
PAD_ID = 1
#: `</s>`, the end of a text.
SEP_ID = 2
#: `<unk>`, what a vocabulary without all bytes does not know.
UNK_ID = 3
