/** The rows of the comparison for Pulsar, with its Java client. */
final class PulsarPeer {
    private PulsarPeer() {}

    public static void main(String[] arguments) throws Exception {
        Shared.Task task = new Shared.Task(arguments);
        switch (task.text("work")) {
            case "fill" -> new PulsarMessages(task).fill();
            case "produce" -> new PulsarMessages(task).produce();
            case "consume" -> new PulsarMessages(task).consume();
            case "tailing" -> new PulsarMessages(task).tailing();
            case "restart" -> new PulsarMessages(task).restart();
            case "transactions" -> new PulsarTransactions(task).transactions();
            case "commits" -> new PulsarTransactions(task).commits();
            case "hanging" -> new PulsarTransactions(task).hanging();
            case "transform" -> new PulsarTransactions(task).transform();
            default -> throw new IllegalArgumentException("unknown work");
        }
        Runtime.getRuntime().halt(0);
    }
}
