package headrace.spark;

import org.apache.spark.api.python.SimplePythonFunction;

/**
 * A Python function that runs with one Python on the driver and with another one on executors. Spark has one name of a
 * program for both, but the Python of a package is at a place that only executors have. Executors get a function of
 * Spark's own class, so they need no class of ours.
 */
public class DriverPython extends SimplePythonFunction {
    private final String driverPython;

    public DriverPython(SimplePythonFunction function, String driverPython) {
        super(function.command(), function.envVars(), function.pythonIncludes(), function.pythonExec(),
            function.pythonVer(), function.broadcastVars(), function.accumulator());
        this.driverPython = driverPython;
    }

    @Override
    public String pythonExec() {
        return driverPython;
    }

    /** What is sent to executors instead of this. */
    protected Object writeReplace() {
        return new SimplePythonFunction(command(), envVars(), pythonIncludes(), super.pythonExec(),
            pythonVer(), broadcastVars(), accumulator());
    }
}
