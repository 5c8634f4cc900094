/** The rows of the comparison for Kafka, with its Java client. */
final class KafkaPeer {
    private KafkaPeer() {}

    public static void main(String[] arguments) throws Exception {
        Shared.Task task = new Shared.Task(arguments);
        switch (task.text("work")) {
            case "fill" -> new KafkaMessages(task).fill();
            case "produce" -> new KafkaMessages(task).produce();
            case "consume" -> new KafkaMessages(task).consume();
            case "tailing" -> new KafkaMessages(task).tailing();
            case "restart" -> new KafkaMessages(task).restart();
            case "transactions" -> new KafkaTransactions(task).transactions();
            case "commits" -> new KafkaTransactions(task).commits();
            case "hanging" -> new KafkaTransactions(task).hanging();
            case "transform" -> new KafkaTransactions(task).transform();
            default -> throw new IllegalArgumentException("unknown work");
        }
        Runtime.getRuntime().halt(0);
    }
}
