"""LSTM, GRU and RNN as functions of plain operators."""
