package suite

var deviceTests []Test
