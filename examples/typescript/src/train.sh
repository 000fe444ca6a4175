echo "replica $1 of $2, learning rate $LEARNING_RATE"
